"""What gets attempts to workers on other machines. `stores.dispatch` says what that takes."""
