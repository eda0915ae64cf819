"""One model of a turn, whatever it comes from: traffic, a chat, a kept conversation, a measured run, a file of replies."""
