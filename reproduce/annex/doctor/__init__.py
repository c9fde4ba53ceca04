"""What this machine can do, what is missing, and how to get it."""
