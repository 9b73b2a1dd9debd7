"""The client side of both protocol generations, and of servers without tasks."""
