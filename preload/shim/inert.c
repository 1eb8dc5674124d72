/* The shim for a platform it has no stubs for: it loads and does nothing, so that the launcher works there (launch only). */
#if defined(__x86_64__) && defined(__GLIBC__)
#error "this platform has a real shim"
#endif

typedef int IpexrunShimInert; /* ISO C forbids an empty translation unit */
