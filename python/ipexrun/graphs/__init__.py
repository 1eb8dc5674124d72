"""Graphs that were captured: their forms, which of them answers, and the backend "ipex" of torch.compile."""
