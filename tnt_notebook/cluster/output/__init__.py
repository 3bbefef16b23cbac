"""What ranks print, merged and shown in the notebook."""
