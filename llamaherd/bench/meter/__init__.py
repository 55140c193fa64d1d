"""The meter: watches a host while its server is measured, and says what a window of time took."""
