#include "trireme/transport/transport.h"

namespace trireme::transport {

std::unique_ptr<Transport> make_ucx(int, int, Store&, const TransportOptions&) {
  fail(ErrorCode::unsupported,
       "transport.kind = \"ucx\": this build has no UCX; build with -DTRIREME_UCX=ON and libucx-dev "
       "installed");
}

}  // namespace trireme::transport
