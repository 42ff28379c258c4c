"""A page in the browser that asks for labels and shows what becomes of them."""
