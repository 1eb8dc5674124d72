"""Training steps: captured forward and backward passes, fused optimizers, memory that is kept."""
