"""A trained model's weights from and to Hugging Face's format.

hugging_face    names and shapes of GPT-2's, Llama's, Mixtral's and Qwen3-MoE's weights as `transformers` has them
weights         loads a checkpoint on one process; weights from such a folder into a checkpoint, and back
"""
