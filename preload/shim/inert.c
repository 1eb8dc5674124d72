/* The shim for a platform it has no stubs for: it loads and does nothing, so that the launcher works there (launch only). */

typedef int IpexrunShimInert; /* ISO C forbids an empty translation unit */
