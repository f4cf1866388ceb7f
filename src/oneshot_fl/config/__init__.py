"""Configuration: composed by Hydra, checked, and turned once into what the rest of the program works on."""
