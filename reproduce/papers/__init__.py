"""A folder for each paper (`sc21` the first, `beyond` what is ours), and `shared`, what several of them use."""
