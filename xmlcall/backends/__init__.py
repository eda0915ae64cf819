"""Clients for model servers, and llama.cpp in this process."""
