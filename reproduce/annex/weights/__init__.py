"""What a trained model is used with: tokens of texts, weights from and to Hugging Face's format.

text            token files made of texts
hugging_face    names and shapes of GPT-2's, Llama's, Mixtral's and Qwen3-MoE's weights as `transformers` has them
weights         loads a checkpoint on one process; weights from such a folder into a checkpoint, and back
"""
