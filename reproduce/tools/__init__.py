"""What a trained model is used with: text and tokens, generation, weights from and to Hugging Face's format.

text            byte-level or trained tokenizers, and token files made of texts
generation      loads a checkpoint on one process, and continues a text with it
hugging_face    names and shapes of GPT-2's, Llama's, Mixtral's and Qwen3-MoE's weights as `transformers` has them
weights         weights from such a folder into a checkpoint, and back
"""
