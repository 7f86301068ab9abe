"""What the end-to-end tests stand on: recorders, programs, servers, ledgers."""
