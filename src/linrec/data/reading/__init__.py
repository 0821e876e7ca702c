"""Files and frames of events, in many formats, as one EventLog."""
