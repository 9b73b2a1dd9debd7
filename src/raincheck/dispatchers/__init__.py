"""What gets attempts to workers on other machines. `stores.dispatcher` says what that takes."""
