"""Model servers, and llama.cpp in the process."""
