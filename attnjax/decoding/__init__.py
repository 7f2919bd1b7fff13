"""Search for output sequences; every search drives a Step and knows no model."""
