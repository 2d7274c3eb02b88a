"""Reading what was observed: pods, the document, and what heads say; pure, and forgiving towards odd content."""
