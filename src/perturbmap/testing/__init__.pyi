from .failure import ConformanceError
from .instances import attractive_graphs, chains, forests, graphs, unaries
from .marginal_methods import check_marginal_method
from .models import check_model
from .objectives import check_objective
from .parts import check_part
from .problems import small_problem
from .solvers import check_solver
from .structures import check_structure
from .task_losses import check_task_loss

__all__ = [
    "ConformanceError",
    "attractive_graphs",
    "chains",
    "check_marginal_method",
    "check_model",
    "check_objective",
    "check_part",
    "check_solver",
    "check_structure",
    "check_task_loss",
    "forests",
    "graphs",
    "small_problem",
    "unaries",
]
