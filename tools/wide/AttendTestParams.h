// What the host gives a launch of attend.cu.
#pragma once
struct AttendParams {
  const char *queries; ///< image of bf16
  char *attended;      ///< the same
  char *keys, *values; ///< of the pool
  int *pageTable;
  char *parts; ///< `partBytes` of each CTA
  unsigned *done;
  int pageTableStride, rows, runs, layers;
  struct Run {
    int slot, firstRow, rows, position, firstToken;
  } run[64];
};
