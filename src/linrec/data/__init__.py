"""From files to sequences: readers, filters, id maps, the sequence store, splits and batches."""
