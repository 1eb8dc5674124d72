/* The event file: how a running instance tells the launcher what happened, readable also after kill -9 of either side.
 *
 * The launcher creates one file an instance (IPEXRUN_EVENTS) with the size below, a header and zeroed records. The header is shared:
 * the shim of any process of the instance raises the state, and the crash library (--crash-report) of any process leaves its crash
 * there. The ring has one writer: the first process of the instance that loads torch claims it (event_ring.h); any other process
 * finds a live owner and stays silent. Records form a ring: record number n (from 0) lies in slot n % capacity and carries sequence
 * n + 1, stored last, so a torn record is recognised. Readers take what they find; numbers that were overwritten are counted as
 * lost. Little endian, this host only.
 *
 * Plain C, no includes but stdint: the shim and the crash library (libc only, C) include this file too.
 */
#ifndef IPEXRUN_CONFIGS_CONTRACT_EVENT_H_
#define IPEXRUN_CONFIGS_CONTRACT_EVENT_H_

#include <stdint.h>

#define IPEXRUN_EVENT_MAGIC 0x31766e7578657069ull /* "ipexunv1" */
#define IPEXRUN_EVENT_SCHEMA 1u
#define IPEXRUN_EVENT_CAPACITY 65536u
#define IPEXRUN_EVENT_HEADER_BYTES 4096u

/* How far the shim came, in IpexrunEventHeader.shim_state; only ever raised, by the process whose pid is root_pid, or by the
 * first process that meets torch. The launcher turns it into --require-shim's verdict and into the summary. */
enum IpexrunShimState {
  IPEXRUN_SHIM_ABSENT = 0,     /* the shim never ran: static program, foreign architecture, AT_SECURE, exec failed */
  IPEXRUN_SHIM_LOADED = 1,     /* the shim runs in the program; no torch seen */
  IPEXRUN_SHIM_TORCH_SEEN = 2, /* libtorch_cpu.so is mapped, the plugin has not started (yet) */
  IPEXRUN_SHIM_REFUSED = 3,    /* gate shut; shim_reason says why */
  IPEXRUN_SHIM_ACTIVE = 4      /* the plugin's start function returned 0 */
};

typedef struct IpexrunEventHeader {
  uint64_t magic;
  uint32_t schema;
  uint32_t capacity;             /* records in the ring */
  uint32_t record_bytes;         /* sizeof(IpexrunEvent) */
  int32_t root_pid;              /* written by the launcher's child before execve: the instance's own process */
  volatile uint32_t shim_state;  /* IpexrunShimState */
  volatile int32_t owner_pid;    /* process that claimed the ring; 0 = nobody */
  volatile uint64_t owner_start; /* its start time, field 22 of /proc/PID/stat; tells a re-used pid apart */
  volatile uint64_t next;        /* number of the next record; the only counter writers share */
  volatile uint64_t lost;        /* records a writer had to drop */
  char shim_reason[256];         /* one line, NUL terminated, for IPEXRUN_SHIM_REFUSED */
  char mask_at_start[512];       /* effective affinity as a CPU list ("0-3,8"), read back inside the child before execve */
  char mems_at_start[128];       /* nodes of the memory policy, read back inside the child; "" = default policy */
  char bind_note[256];           /* what could not be bound and why ("set_mempolicy: Operation not permitted"), else "" */
  /* --crash-report: the crash of a process of the instance; crash_signal is stored last, 0 = none. The instance's own process (root_pid)
   * replaces what another one left. */
  volatile int32_t crash_signal;
  int32_t crash_pid;
  int32_t crash_frames;  /* of the stack, as far as it could be followed; 0 = not at all */
  int32_t crash_ours;    /* how many of them are code of ipexrun */
  char crash_where[256]; /* the innermost frame: "libfoo.so+0x1139 (work)", "" = unknown */
} IpexrunEventHeader;

enum IpexrunEventKind {
  IPEXRUN_EVENT_NONE = 0,
  IPEXRUN_EVENT_PROCESS = 1,  /* a process claimed the ring; text = "torch 2.13.0+cpu, amx, 2 threads" */
  IPEXRUN_EVENT_CALL = 2,     /* one top-level module call; text = class name of the module */
  IPEXRUN_EVENT_SITE = 3,     /* state of one site (cumulative, latest wins); text = SiteKey::text() */
  IPEXRUN_EVENT_TOTALS = 4,   /* totals of the op tier (cumulative, latest wins) */
  IPEXRUN_EVENT_NOTE = 5,     /* one line for a person */
  IPEXRUN_EVENT_EXIT = 6,     /* orderly end of the owner */
  IPEXRUN_EVENT_OP = 7,       /* totals of one op (cumulative, latest wins); text = its name, then after one '\t' why calls never came to
                                 selection: "layout=12,small=3", "" = none */
  IPEXRUN_EVENT_DRIFT = 8,    /* whole passes computed twice (cumulative, latest wins); none where nothing had to be checked; text = the
                                 largest drift of those within IPEXRUN_DRIFT_BOUND: "1.881e-02", "" = none was */
  IPEXRUN_EVENT_REGION = 9,   /* a row of operators in a TorchScript graph (cumulative, latest wins); text = where it stands, then after one
                                 '\t' which form answers and what is fused in it, or why stock's does */
  IPEXRUN_EVENT_OP_TIME = 10, /* where one call of a captured graph spends its time (latest wins for a graph and a text); text = operator */
  IPEXRUN_EVENT_STEP = 11     /* an optimizer step ended; times since the one before, or since what began first */
};

#define IPEXRUN_DRIFT_BOUND 2e-2 /* how far candidates may move the results of a pass: RMS of the difference / RMS of stock's */

#define IPEXRUN_CALL_TRAINING 1u  /* grad mode on and the module in train() */
#define IPEXRUN_CALL_EXPLORING 2u /* selection measured a candidate during this call: not a steady-state time */
#define IPEXRUN_CALL_FAILED 4u    /* the call raised */

typedef struct IpexrunEvent {
  volatile uint64_t sequence; /* number + 1, stored last with release order; 0 = empty */
  uint32_t kind;              /* IpexrunEventKind */
  uint32_t flags;             /* IPEXRUN_CALL_* */
  uint64_t start_ns;          /* CLOCK_MONOTONIC */
  uint64_t duration_ns;
  int32_t thread; /* kernel thread id */
  int32_t reserved;
  int64_t value[6]; /* CALL: [0] batch size (dimension 0 of the first tensor argument, 0 = none)
                       SITE: [0] calls [1] taken [2] declined [3] median stock ns [4] median choice ns [5] samples;
                             the choice and the reason are appended to text after two '\t'
                       OP: [0] calls [1] taken [2] never came to selection [3] ns that stock would have taken for the calls taken
                             [4] ns saved by them [5] sites
                       TOTALS: [0] calls [1] taken [2] declined [3] saved ns [4] pack bytes [5] sites
                       DRIFT: [0] checks that came to an end [1] of these beyond the bound [2] that came to none; weights, and sites of ops
                             without weights: [3] let through [4] left in float32 [5] that wait for a check
                       REGION: [0] its number in the process [1] operators [2] calls [3] taken [4] times stock's speed, in thousandths,
                             0 = not decided [5] error, in billionths
                       STEP: ns in [0] data loading [1] forward [2] backward [3] optimizer; [4] samples, 0 = unknown [5] batches loaded
                       OP_TIME: [0] number of its REGION; how often it stands there and ns in one call: [1] [2] by torch's own kernels as
                             captured [3] [4] in the program of ipexrun */
  char text[160];   /* NUL terminated, cut when longer */
} IpexrunEvent;

#define IPEXRUN_EVENT_FILE_BYTES (IPEXRUN_EVENT_HEADER_BYTES + (uint64_t)IPEXRUN_EVENT_CAPACITY * sizeof(IpexrunEvent))

#endif
