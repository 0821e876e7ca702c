"""Other people's SASRec and ours, side by side: one file per peer, each run by its own python."""
