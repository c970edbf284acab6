"""A simulated engine: speaks vLLM's or llama.cpp's wire, decodes made-up text, and says everywhere that it is simulated."""
