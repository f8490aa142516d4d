"""Chains solved where the tensors are: messages along time, by torch operations or by Triton kernels."""
