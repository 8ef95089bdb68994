#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/communicator.h"

namespace tessera {

// One collective of the suite, with inputs that every rank can compute for every rank.
struct CollectiveCase {
  CommAction action = CommAction::kAllGather;
  DType dtype = DType::kF32, output_dtype = DType::kF32;
  int64_t outer = 1, inner = 1;
  Reduction reduction = Reduction::kSum;
  uint64_t seed = 0;
};
std::string describe(const CollectiveCase& c);

// Actions x dtypes x odd, zero, small and large sizes; the large ones take three rounds in a group
// of so many ranks.
std::vector<CollectiveCase> collective_cases(int ranks);

CommCall call_of(const CollectiveCase& c, const CommGroup& group, const void* input, void* output);
// The input of rank `rank` of the job.
std::vector<std::byte> input_of(const CollectiveCase& c, const CommGroup& group, int rank);
// What the rank with this index must get, computed element by element from the definition.
std::vector<std::byte> expected_output(const CollectiveCase& c, const CommGroup& group, int index);

// The cases in a group of all ranks, computed once: ranks are threads or forks of who has the
// table.
struct CollectiveTable {
  struct Entry {
    CollectiveCase c;
    std::vector<std::vector<std::byte>> inputs, outputs;  // by rank; one output if all get the same
    const std::vector<std::byte>& output(int rank) const {
      return outputs[outputs.size() == 1 ? 0 : static_cast<size_t>(rank)];
    }
  };
  // Of the cases the first of `every` so many.
  CollectiveTable(int world, uint64_t every);
  std::vector<Entry> entries;
};

}  // namespace tessera
