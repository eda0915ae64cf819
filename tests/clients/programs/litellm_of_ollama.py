"""LiteLLM with its Ollama client: python tests/clients/programs/litellm_of_ollama.py http://127.0.0.1:8485"""

from litellm_chat import main

if __name__ == "__main__":
    main("ollama_chat/local")
