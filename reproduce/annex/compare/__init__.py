"""Two result sets: what differs, what was stated to, and whether they can be compared."""
