#pragma once
// Joins the other ranks of a run, as the launcher's plan says.
#include <memory>

#include "launch.h"
#include "trireme/transport/rendezvous.h"

namespace trireme::app {

// Rank 0 opens the rendezvous, the others join it; under an agent that holds a store, they learn the port
// from there. Null for a world of one. Errors as open_rendezvous, join_rendezvous and read_secret.
std::shared_ptr<transport::Rendezvous> meet(const LaunchPlan& plan,
                                            const transport::TransportOptions& options);

}  // namespace trireme::app
