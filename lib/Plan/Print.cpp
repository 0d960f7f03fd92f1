#include "Layout.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::plan {

static const char *loweringName(Edge::Lowering lowering) {
  switch (lowering) {
  case Edge::Barrier:
    return "grid barrier";
  case Edge::Words:
    return "words";
  case Edge::Flagged:
    return "flags in data";
  case Edge::Leave:
    return "a count, for CTA 0";
  case Edge::Count:
    return "a count for each set of groups";
  }
  llvm_unreachable("an edge");
}

/// `x`, or which of its instances: `x[layer + 1]`.
static std::string placeName(const ModelPlan &planned, const Place &place) {
  const Buffer &buffer = planned.buffers[place.buffer];
  switch (place.instance) {
  case Place::First:
    return buffer.instances == 1 ? buffer.name : buffer.name + "[0]";
  case Place::Layer:
    return buffer.name + "[layer]";
  case Place::Next:
    return buffer.name + "[layer + 1]";
  case Place::Last:
    return fmt::format("{}[{}]", buffer.name, buffer.instances - 1);
  }
  llvm_unreachable("not an instance");
}

static void printPhases(std::string &out, const ModelPlan &planned, const std::vector<Phase> &phases,
                        const char *indent) {
  for (const Phase &phase : phases) {
    const char *kind = phase.kind == Phase::Stream      ? "stream"
                       : phase.kind == Phase::Map       ? "map"
                       : phase.kind == Phase::Attention ? "attention"
                       : phase.kind == Phase::Operand   ? "operand"
                       : phase.kind == Phase::Order     ? "order"
                                                        : "copy";
    std::string results;
    if (phase.op && phase.kind != Phase::Operand)
      for (ir::Value v : phase.op->results) {
        auto it = planned.placeOf.find(v.id);
        if (it != planned.placeOf.end())
          results += (results.empty() ? " -> " : ", ") + placeName(planned, it->second);
      }
    if (phase.kind == Phase::Copy || phase.kind == Phase::Operand || phase.kind == Phase::Order)
      results = " -> " + placeName(planned, phase.to);
    out += fmt::format("{}{:<9} {:<24}{}  edge {}{}\n", indent, kind, phase.name, results, phase.edge,
                       phase.several ? ", where a slot has several rows; else attention makes them" : "");
  }
}

/// Where scales and zero points of codes stand.
static std::string codingText(const Matrix &m) {
  std::string text =
      m.rowScales ? ", a scale for each row" : fmt::format(", scales for {} columns", m.pieceBlocks * kBlockColumns);
  if (m.coding.scalesOfTile)
    text += m.coding.scalesOfTile == 2 ? ", two for a tile" : ", one for each row";
  return text + (m.coding.zeros ? ", with zero points" : "") + (m.ordered ? ", columns in an order" : "");
}

static void printMatrices(std::string &out, const Plan &plan, const ModelPlan &planned) {
  out += "matrices (in stream order)\n";
  for (const Matrix &m : planned.matrices) {
    const int64_t tiles = m.tiles();
    const int64_t ctas = plan.ctas - m.firstCta, rounds = (m.groups + ctas - 1) / ctas;
    out += fmt::format("  {:<24} k {} (padded {}), {} groups of {} tiles, {} chunks of {} bytes each, "
                       "balance {:.1f} %",
                       m.name, m.k, m.kPadded, m.groups, m.group, m.blocks / m.chunkBlocks, m.chunkBytes(),
                       100.0 * tiles / (rounds * m.group * ctas));
    if (m.layers)
      out += fmt::format(", {} layers", m.layers);
    out += fmt::format(", offset {}\n", m.offset);
    if (m.format != WeightFormat::Bf16)
      out += fmt::format("    codes {}{}, {} bytes of a layer\n", ir::word(m.format), codingText(m), m.bytes);
    const int64_t unitsEach = (m.units() + plan.ctas - 1) / plan.ctas; // at most
    if (m.unitParts)
      out += fmt::format("    of more than {} rows: {} units of {} groups and {}, first cta {}, balance {:.1f} %\n",
                         int(kTileRows), m.units(), kParts,
                         m.unitParts == kParts ? "all columns" : "an eighth of the columns", m.firstUnitCta,
                         100.0 * m.units() / (unitsEach * plan.ctas));
    for (const PairRange &r : m.ranges) {
      out += fmt::format("    pairs {}..{} {} of {}", r.pairBegin, r.pairBegin + r.pairs, word(r.pairing), r.weight);
      if (r.pairing == Pairing::Dual)
        out += " and " + r.second;
      if (r.pairing == Pairing::Half)
        out +=
            r.turned == r.dim ? fmt::format(" (dim {})", r.dim) : fmt::format(" (dim {}, {} turned)", r.dim, r.turned);
      out += fmt::format(", {} columns\n", r.columns);
    }
  }
  if (!planned.vectors.empty())
    out += "vectors (after the matrices)\n";
  for (const Vector &v : planned.vectors)
    out += fmt::format("  {:<24} {} columns{}, offset {}\n", v.weight, v.length,
                       v.layers ? fmt::format(", {} layers", v.layers) : "", v.offset);
  if (planned.kvInE4m3)
    out += fmt::format("K and V: e4m3, a scale for each token and head{}\n",
                       planned.bf16Layers ? fmt::format("; bf16 in {} layers, which have windows", planned.bf16Layers)
                                          : "");
  if (planned.tokenTable)
    out += fmt::format("token table {}: {} rows of {} bytes\n", planned.tokenTable->weight, planned.tokenTable->rows,
                       planned.tokenTable->rowBytes);
}

static void printBuffersAndPhases(std::string &out, const Plan &plan, const ModelPlan &planned) {
  out +=
      fmt::format("\nbuffers (of a row: {} bytes; two sets of {} rows)\n", planned.records.rowBytes, plan.rowsAtOnce);
  for (const Buffer &b : planned.buffers)
    out += fmt::format("  {:<16} {} [{}, {}] at {}{}\n", b.name, word(b.dtype), b.instances, b.columns, b.offset,
                       b.several ? ", of more than one row" : "");
  out += "\nphases\n";
  for (const Segment &s : planned.segments) {
    out += fmt::format("  segment {}\n", s.name);
    printPhases(out, planned, s.before, "    ");
    if (s.repeatCount) {
      out += fmt::format("    repeat {}\n", s.repeatCount);
      printPhases(out, planned, s.repeated, "      ");
      printPhases(out, planned, s.after, "    ");
    }
  }
}

std::string print(const Plan &plan) {
  std::string out;
  const bool several = plan.models.size() > 1;
  out += fmt::format("plan for {} ({} SMs, {} bytes of shared memory)\n", plan.profile.name, plan.profile.smCount,
                     plan.profile.sharedBytes);
  const bool spared = llvm::any_of(plan.models, [](const ModelPlan &planned) {
    return llvm::any_of(planned.matrices, [](const Matrix &m) { return m.firstCta > 0; });
  });
  const bool inPieces = plan.rowsPerPass > plan.rowsAtOnce && !plan.wide();
  out += fmt::format("  ctas {}{}, threads {}, rows per pass {}{}\n", plan.ctas,
                     spared ? " (CTA 0 without tiles of the layers)" : "", plan.ctaThreads(), plan.rowsPerPass,
                     inPieces ? fmt::format(", in pieces of {}", plan.rowsAtOnce) : "");
  std::string few = plan.ring.fewLentStages < plan.ring.lentStages
                        ? fmt::format(", {} of them to up to {} rows", plan.ring.fewLentStages, kFewRows)
                        : "";
  if (plan.ring.tall())
    few += fmt::format(", {} to {} to {} rows", plan.ring.tallLentStages, kFewRows + 1, int(kTileRows));
  out += fmt::format(
      "  ring {} stages of {} bytes ({} in flight, {} lent to several rows{}), scratch {} bytes, control {} "
      "bytes, shared {} bytes, order {}\n",
      plan.ring.stages, plan.ring.stageBytes, plan.ring.flight, plan.ring.lentStages, few, plan.shared.scratchBytes,
      plan.shared.controlBytes, plan.shared.bytes, plan.knobs.descending ? "descending" : "ascending");
  if (several)
    out += fmt::format("  flagged words {} bytes\n", plan.flaggedBytes);
  else
    out += fmt::format("  stream {} bytes, workspace {} bytes, flagged words {} bytes\n", plan.models[0].streamBytes,
                       plan.models[0].records.workspaceBytes, plan.flaggedBytes);
  if (plan.kept.rows)
    out += fmt::format("  kept rows of logits {} of {} tokens, {} bytes\n", plan.kept.rows, plan.kept.vocab,
                       plan.kept.bytes);
  if (plan.wideRows)
    out += fmt::format("  products of more than {} rows: {} at a time, {} stages lent to them\n", int(kTileRows),
                       plan.wideRows, plan.ring.wideLentStages);
  const auto printWide = [&](const ModelPlan &planned) {
    if (plan.rowsPerPass <= plan.rowsAtOnce)
      return;
    int64_t bytes = 0;
    for (const Buffer &b : planned.buffers)
      bytes += b.wideBytes * b.wideInstances();
    out += planned.wide.refused.empty()
               ? fmt::format("  passes of more than {} rows run whole, with {} bytes of activations\n", plan.rowsAtOnce,
                             bytes)
               : fmt::format("  passes of more than {0} rows run in pieces of {0}: {1}\n", plan.rowsAtOnce,
                             planned.wide.refused);
  };
  const auto printAttention = [&](const ModelPlan &planned) {
    if (planned.wideAttention.units)
      out += fmt::format("  attention of many rows of a slot: up to {} units of at most 128 pairs and {} positions\n",
                         planned.wideAttention.units, planned.wideLevels ? "256 or 2048" : "256");
    out += "\n";
  };
  for (const ModelPlan &model : plan.models) {
    if (several)
      out +=
          fmt::format("{}model {}\n  stream {} bytes, workspace {} bytes\n", &model == &plan.models[0] ? "\n" : "\n\n",
                      model.name, model.streamBytes, model.records.workspaceBytes);
    printWide(model);
    printAttention(model);
    printMatrices(out, plan, model);
    printBuffersAndPhases(out, plan, model);
  }
  out += "\nedges\n";
  for (size_t i = 0; i < plan.edges.size(); ++i)
    out += fmt::format("  {:>3} after {:<24} {}\n", i, plan.edges[i].name,
                       llvm::any_of(plan.models, [&](const ModelPlan &model) { return model.wide.edge == int(i); })
                           ? fmt::format("a count for each {} rows", kWideCountedRows)
                           : loweringName(plan.edges[i].lowering));
  return out;
}

} // namespace megalith::plan
