"""Training: the server's chain of stages, the engines that run clients, and the loop over rounds."""
