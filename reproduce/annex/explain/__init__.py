"""Why a measured iteration is slower than simulated, or than another run; what a profiled step's time went to."""
