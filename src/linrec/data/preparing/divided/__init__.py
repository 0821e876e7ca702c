"""The same dataset, made by many tasks that each hold some rows or some users.

Tasks exchange arrays through a folder that all workers see. Each writes files of its own, so one
that is lost is done again, and none depends on which worker did another:

chunks      rows of a file are read; ids become codes of that chunk
numbering   equal ids of all chunks meet in a bucket; all get numbers by their first rows
scatter     the chunk's events, with these numbers, go to ranges of users
histories   each range is sorted and filtered
core        rare items and short users are counted and left out, until both hold
output      each range is written to its place in the dataset
"""
