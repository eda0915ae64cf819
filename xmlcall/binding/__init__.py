"""Turns a call's text into arguments that its tool accepts."""
