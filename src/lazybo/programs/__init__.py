"""Programs in any language as objectives."""
