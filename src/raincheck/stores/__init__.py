"""Task storage: the store interface (`base`) and its implementations."""
