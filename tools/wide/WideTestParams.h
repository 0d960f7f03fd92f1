// What the host gives a launch of unit.cu.
#pragma once
/// Rows of the pass that follow each other in a slot.
struct Run {
  int slot, firstRow, rows, position;
};
struct TestParams {
  const char *stream;
  char *x, *n, *q, *h; ///< images
  unsigned short *keys, *values;
  const unsigned short *norm;
  const float *ropeCosSin;
  const int *pageTable;
  unsigned *done, *spoiled;
  int pageTableStride, rows, runs;
  int layers, first, count; // products of the table
  Run run[8];
};
