"""The proof: planted faults × real servers, and whether Tailscope names and prices each of them."""
