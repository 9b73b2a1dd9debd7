"""The client side of both generations, and of servers without tasks."""
