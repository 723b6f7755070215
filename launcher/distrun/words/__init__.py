"""What users read of causes, events, states and verdicts: sentences, without colour or layout."""
