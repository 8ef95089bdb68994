#include <array>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "torch_files/pickle.h"

// What is accepted can be walked, and every value is of the kind that it says. A list may hold
// itself, so the walk ends after so many values.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static constexpr std::array<std::string_view, 5> kGlobals{
      "collections.OrderedDict", "torch.Size", "torch.FloatStorage",
      "torch._utils._rebuild_tensor_v2", "torch.distributed.checkpoint.metadata.Metadata"};
  try {
    Pickle pickle(std::as_bytes(std::span(data, size)), kGlobals, "fuzz");
    std::vector<PickleValue> left{pickle.root()};
    for (int count = 0; count < 100'000 && !left.empty(); ++count) {
      PickleValue v = left.back();
      left.pop_back();
      switch (v.kind()) {
        case PickleKind::kTuple:
        case PickleKind::kList:
        case PickleKind::kSet:
          for (PickleValue item : pickle.items(v, "items")) left.push_back(item);
          break;
        case PickleKind::kDict:
          TESSERA_CHECK(pickle.pairs(v, "a dict").size() % 2 == 0);
          for (PickleValue item : pickle.pairs(v, "a dict")) left.push_back(item);
          pickle.find(v, "key");
          break;
        case PickleKind::kObject: {
          const PickleObject& object = pickle.object(v, "an object");
          left.insert(left.end(), {object.maker, object.arguments, object.state});
          break;
        }
        case PickleKind::kReference: left.push_back(pickle.reference(v, "a reference")); break;
        case PickleKind::kText: TESSERA_CHECK(pickle.text(v, "a text").size() <= size); break;
        case PickleKind::kGlobal: TESSERA_CHECK(!pickle.global(v, "a global").empty()); break;
        case PickleKind::kInt: pickle.integer(v, "an integer"); break;
        case PickleKind::kFloat: pickle.number(v, "a float"); break;
        default: break;
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
