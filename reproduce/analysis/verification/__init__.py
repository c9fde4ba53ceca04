"""Every quantitative sentence of the paper, judged: `reproduce verify`, and what covers each of them."""
