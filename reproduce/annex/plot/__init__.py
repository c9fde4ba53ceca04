"""Figures drawn again from records, for a publication, beside others, with points of one's own."""
