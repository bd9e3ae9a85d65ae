//! `/v1/benefit`: what advice does to transfers, by what hosts reported.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;

use super::parameters::Parameters;
use super::problem::Problem;
use crate::api::Api;
use crate::api::benefit::BenefitDocument;

pub(super) async fn benefit(State(api): State<Api>, uri: Uri) -> Result<Json<BenefitDocument>, Problem> {
    Parameters::parse(&uri, &[])?;
    Ok(Json(api.shared.reports.benefit_document()))
}
