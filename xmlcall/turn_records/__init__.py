"""One data model of a turn for every source: traffic, a chat, a stored conversation, a benchmark run or a file of replies."""
