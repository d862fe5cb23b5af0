"""The paper's own figures: one finding each, across families, in two widths; `catalogue` draws them."""
