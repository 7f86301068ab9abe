"""What people see: text, JSON and pages."""
