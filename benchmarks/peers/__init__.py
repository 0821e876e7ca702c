"""Other people's SASRec and ours, side by side: one file a peer, each run by its own python."""
