#pragma once
#include <string>
#include <string_view>

namespace tessera::cuda {

// The network that NCCL has chosen between hosts. It falls back to TCP sockets in silence where a
// plug-in does not load (aws-ofi-nccl for EFA) or no InfiniBand is found, and says so in its log
// alone: no function of it does.
class NcclNetwork {
 public:
  // NCCL's log of connecting goes to a file from now on, unless the environment says where it goes:
  // then nothing is known. To be made before the first communicator of the process.
  NcclNetwork();
  ~NcclNetwork();
  NcclNetwork(const NcclNetwork&) = delete;
  NcclNetwork& operator=(const NcclNetwork&) = delete;

  // "AWS Libfabric, provider efa", "IB", "Socket"; "" where nothing is known.
  std::string name() const;
  // The same of a log.
  static std::string name_in(std::string_view log);

 private:
  std::string file_;
};

}  // namespace tessera::cuda
